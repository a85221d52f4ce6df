# Reads and writes at random places of randomly chosen files.
set $dir=/tmp
set $nfiles=1000
set $meandirwidth=20
set $meanfilesize=128k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=5
set $iosize=8k
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100
define process name=access1,instances=1 {
  thread name=access1,memsize=10m,instances=$nthreads {
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop read name=read1,fd=1,iosize=$iosize,random,iters=5
    flowop closefile name=close1,fd=1
    flowop openfile name=open2,filesetname=bigfileset,fd=1
    flowop write name=write1,fd=1,iosize=$iosize,random,iters=5
    flowop closefile name=close2,fd=1
  }
}
run 60
