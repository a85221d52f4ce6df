# A file server: clients create, write, append, read and delete whole files, and look at them.
set $dir=/tmp
set $nfiles=10000
set $meandirwidth=20
set $meanfilesize=128k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=50
set $iosize=1m
set $meanappendsize=16k
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=80
define process name=fileserver1,instances=1 {
  thread name=client1,memsize=10m,instances=$nthreads {
    flowop createfile name=create1,filesetname=bigfileset,fd=1
    flowop writewholefile name=write1,srcfd=1,fd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop appendfilerand name=append1,fd=1,iosize=$meanappendsize
    flowop closefile name=close2,fd=1
    flowop openfile name=open2,filesetname=bigfileset,fd=1
    flowop readwholefile name=read1,fd=1,iosize=$iosize
    flowop closefile name=close3,fd=1
    flowop deletefile name=delete1,filesetname=bigfileset
    flowop statfile name=stat1,filesetname=bigfileset
  }
}
run 60
