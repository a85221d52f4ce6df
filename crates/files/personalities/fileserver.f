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
define process name=fileserver,instances=1 {
  thread name=client,memsize=10m,instances=$nthreads {
    flowop createfile name=create,filesetname=bigfileset,fd=1
    flowop writewholefile name=write,srcfd=1,fd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop appendfilerand name=append,fd=1,iosize=$meanappendsize
    flowop closefile name=close2,fd=1
    flowop openfile name=open2,filesetname=bigfileset,fd=1
    flowop readwholefile name=read,fd=1,iosize=$iosize
    flowop closefile name=close3,fd=1
    flowop deletefile name=delete,filesetname=bigfileset
    flowop statfile name=stat,filesetname=bigfileset
  }
}
run 60
