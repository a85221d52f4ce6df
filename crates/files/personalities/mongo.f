# A document store: a file is read at random and appended to with fsync; files are replaced now and then.
set $dir=/tmp
set $nfiles=200
set $meandirwidth=20
set $filesize=16k
set $nthreads=1
set $meanappendsize=10k
set $readiosize=4k
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=80
define process name=store1,instances=1 {
  thread name=store1,memsize=10m,instances=$nthreads {
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop appendfilerand name=insert1,fd=1,iosize=$meanappendsize
    flowop fsync name=commit1,fd=1
    flowop read name=find1,fd=1,iosize=$readiosize,random,iters=4
    flowop closefile name=close1,fd=1
    flowop createfile name=extend1,filesetname=bigfileset,fd=2
    flowop writewholefile name=fill1,fd=2,iosize=64k
    flowop closefile name=close2,fd=2
    flowop deletefile name=drop1,filesetname=bigfileset
  }
}
run 60
